// What a test waits for comes when the machine gets to it. The usual second is too short for a busy one, and waiting longer
// costs nothing where it comes at once.

import { configure } from "@testing-library/dom";

configure({ asyncUtilTimeout: 20_000 });
