// A record as a page: its heading, the table with what is loaded of it, and the way to what is older. It shows what it is
// given, in the order it is given; which of it, and in which words, is for the page that uses it.

import { Fragment, type ReactNode } from "react";
import { Empty, type Paged, Trouble, Waiting } from "./loading";
import { Title } from "./Title";

interface Props<T> {
  title: string;
  /** Not in sight now: the page behind another one. */
  away?: boolean;
  record: Paged<T>;
  /** Between the heading and the table. */
  children: ReactNode;
  waiting: string;
  /** What of the loaded is shown. */
  shown: T[];
  keyOf: (item: T) => string | number;
  row: (item: T) => ReactNode;
  columns: string[];
  caption: string;
  className: string;
  /** Why nothing is shown, and what to do. */
  nothing: { title: string; words: ReactNode };
}

export function RecordPage<T>(props: Props<T>) {
  const { record, shown, nothing } = props;
  return (
    <>
      <header className="page-head">
        <Title away={props.away ?? false}>{props.title}</Title>
        <button type="button" className="page-button" disabled={record.busy} onClick={record.again}>
          Refresh
        </button>
      </header>
      {props.children}
      {record.items === null && !record.problem && <Waiting what={props.waiting} />}
      {record.items !== null && shown.length === 0 && <Empty title={nothing.title}>{nothing.words}</Empty>}
      {shown.length > 0 && (
        <table className={`page-table ${props.className}`} aria-busy={record.busy}>
          <caption>{props.caption}</caption>
          <thead>
            <tr>
              {props.columns.map((column) => (
                <th key={column} scope="col">
                  {column}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.map((item) => (
              <Fragment key={props.keyOf(item)}>{props.row(item)}</Fragment>
            ))}
          </tbody>
        </table>
      )}
      {record.more && (
        <button type="button" className="page-button page-older" disabled={record.busy} onClick={record.older}>
          {record.busy ? "Reading…" : "Older"}
        </button>
      )}
      {record.problem && <Trouble problem={record.problem} again={record.again} />}
    </>
  );
}
