// What went wrong beside the conversation, until the person puts it away.

import { X } from "lucide-react";
import type { Notice } from "../state/model";
import { Sentences } from "../text/Sentences";

export function Notices({ notices, dismiss }: { notices: Notice[]; dismiss: (id: number) => void }) {
  return (
    <div className="app-notices">
      {notices.map((notice) => (
        <div key={notice.id} className="app-notice" role="alert">
          <p>
            <Sentences text={notice.text} />
            {notice.hint !== null && (
              <span className="app-hint">
                <Sentences text={notice.hint} />
              </span>
            )}
          </p>
          <button type="button" className="app-close" aria-label="Dismiss" onClick={() => dismiss(notice.id)}>
            <X size={16} aria-hidden="true" />
          </button>
        </div>
      ))}
    </div>
  );
}
