// The page in a browser tab.
import "./styles/tokens.css";
import "./styles/app.css";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./app/App";
import { BrowserHost } from "./browser_host";

const root = document.getElementById("root");
if (root) {
  createRoot(root).render(
    <StrictMode>
      <App host={new BrowserHost()} />
    </StrictMode>,
  );
}
