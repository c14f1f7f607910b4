// What went wrong beside the conversation, until the person puts it away.

import type { Notice } from "../state/model";
import { visible } from "../text/visible";

export function Notices({ notices, dismiss }: { notices: Notice[]; dismiss: (id: number) => void }) {
  return (
    <div className="app-notices">
      {notices.map((notice) => (
        <div key={notice.id} className="app-notice" role="alert">
          <p>
            {visible(notice.text)}
            {notice.hint !== null && <span className="app-hint">{visible(notice.hint)}</span>}
          </p>
          <button type="button" className="app-close" aria-label="Dismiss" onClick={() => dismiss(notice.id)}>
            ×
          </button>
        </div>
      ))}
    </div>
  );
}
