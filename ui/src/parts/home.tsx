// Where menus and dialogs are put: inside the app, so that its colours hold and a page around it keeps its own.

import { CSPProvider } from "@base-ui/react/csp-provider";
import { createContext, type ReactNode, useContext, useState } from "react";

const Home = createContext<HTMLElement | null>(null);

/** The element of the app, and the home of everything that opens over it. */
export function AppHome({ children }: { children: ReactNode }) {
  const [home, setHome] = useState<HTMLElement | null>(null);
  return (
    // The page's policy allows no inline style sheet.
    <CSPProvider disableStyleElements>
      <Home value={home}>
        <div className="app" ref={setHome}>
          {children}
        </div>
      </Home>
    </CSPProvider>
  );
}

/** What a portal takes as its container; undefined is the page. */
export function useHome(): HTMLElement | undefined {
  return useContext(Home) ?? undefined;
}
