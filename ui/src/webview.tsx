// The chat in the editor's webview.
import "./styles/tokens.css";
import "./styles/app.css";
import "./styles/vscode.css";
import { createRoot } from "react-dom/client";
import { type EditorApi, VsCodeHost } from "./vscode_host";
import { EditorView } from "./vscode_view";

declare function acquireVsCodeApi(): EditorApi;

const root = document.getElementById("root");
if (root) createRoot(root).render(<EditorView host={new VsCodeHost(acquireVsCodeApi(), window)} />);
