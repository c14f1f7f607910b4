// Keeps a fault of one part from taking the rest with it: a card with data nobody foresaw, or a part of the page that
// could not be fetched because the server was updated meanwhile.

import { Component, type ReactNode } from "react";
import { reload } from "./reload";

interface Props {
  /** What to say instead; gets what went wrong. */
  instead: (error: unknown) => ReactNode;
  children: ReactNode;
}

export class Boundary extends Component<Props, { error: unknown; failed: boolean }> {
  override state = { error: null as unknown, failed: false };

  static getDerivedStateFromError(error: unknown) {
    return { error, failed: true };
  }

  override render() {
    return this.state.failed ? this.props.instead(this.state.error) : this.props.children;
  }
}

export function PartFailed() {
  return (
    <div className="app-failed" role="alert">
      <p>This part of the page could not be loaded. The server may have been updated or may not be reachable.</p>
      <button type="button" className="app-button" onClick={reload}>
        Reload the page
      </button>
    </div>
  );
}

export function EntryFailed() {
  return <p className="app-remark app-remark-error">This entry could not be shown here. History has its record.</p>;
}
