// The page in a browser tab.
import { createRoot } from "react-dom/client";

const root = document.getElementById("root");
if (root) createRoot(root).render(<p>Assent</p>);
