/* Generated from protocol/tools.py by `make schema`. Do not edit. */

/** The six tools: name on the wire, description and JSON Schema of the parameters, by their names in JavaScript. */
export const CATALOGUE = {
  "readFile": {
    "name": "read_file",
    "description": "Read a text file of the workspace, or a range of its lines. PDFs and images come as base64; other binary files are refused. Up to 100 MB.",
    "parameters": {
      "additionalProperties": false,
      "properties": {
        "path": {
          "description": "Path inside the workspace, relative to it (or absolute below it).",
          "examples": [
            "src/app.py"
          ],
          "maxLength": 4096,
          "minLength": 1,
          "title": "Path",
          "type": "string"
        },
        "start_line": {
          "anyOf": [
            {
              "minimum": 1,
              "type": "integer"
            },
            {
              "type": "null"
            }
          ],
          "default": null,
          "description": "First line to read, counted from 1.",
          "title": "Start Line"
        },
        "end_line": {
          "anyOf": [
            {
              "minimum": 1,
              "type": "integer"
            },
            {
              "type": "null"
            }
          ],
          "default": null,
          "description": "Last line to read, inclusive.",
          "title": "End Line"
        }
      },
      "required": [
        "path"
      ],
      "title": "ReadFileParams",
      "type": "object"
    }
  },
  "writeFile": {
    "name": "write_file",
    "description": "Write or append text to a file of the workspace. The user is asked first. Up to 100 MB.",
    "parameters": {
      "additionalProperties": false,
      "properties": {
        "path": {
          "description": "Path inside the workspace, relative to it (or absolute below it).",
          "examples": [
            "src/app.py"
          ],
          "maxLength": 4096,
          "minLength": 1,
          "title": "Path",
          "type": "string"
        },
        "content": {
          "description": "The text to write.",
          "title": "Content",
          "type": "string"
        },
        "mode": {
          "default": "write",
          "description": "Replace the file, or add to its end.",
          "enum": [
            "write",
            "append"
          ],
          "title": "Mode",
          "type": "string"
        }
      },
      "required": [
        "path",
        "content"
      ],
      "title": "WriteFileParams",
      "type": "object"
    }
  },
  "runCommand": {
    "name": "execute_command",
    "description": "Run one allowed command with a list of arguments in the workspace, inside a sandbox, without a shell. Reading commands run at once; others ask the user first. Output up to 1 MB.",
    "parameters": {
      "additionalProperties": false,
      "properties": {
        "command": {
          "description": "Name of an allowed command; no path, no shell.",
          "examples": [
            "git"
          ],
          "maxLength": 256,
          "minLength": 1,
          "title": "Command",
          "type": "string"
        },
        "args": {
          "description": "Arguments, one item each; nothing is expanded.",
          "examples": [
            [
              "status"
            ]
          ],
          "items": {
            "type": "string"
          },
          "title": "Args",
          "type": "array"
        },
        "timeout": {
          "default": 30,
          "description": "Seconds it may run.",
          "maximum": 300,
          "minimum": 1,
          "title": "Timeout",
          "type": "integer"
        }
      },
      "required": [
        "command"
      ],
      "title": "ExecuteCommandParams",
      "type": "object"
    }
  },
  "listDir": {
    "name": "list_directory",
    "description": "List a directory of the workspace, optionally with all that lies below. Up to 1000 entries.",
    "parameters": {
      "additionalProperties": false,
      "properties": {
        "path": {
          "default": ".",
          "description": "Path inside the workspace, relative to it (or absolute below it).",
          "examples": [
            "src/app.py"
          ],
          "maxLength": 4096,
          "minLength": 1,
          "title": "Path",
          "type": "string"
        },
        "recursive": {
          "default": false,
          "description": "Also list what lies below.",
          "title": "Recursive",
          "type": "boolean"
        },
        "pattern": {
          "default": "*",
          "description": "Glob on names; hidden files are listed only when it starts with a dot.",
          "maxLength": 1000,
          "minLength": 1,
          "title": "Pattern",
          "type": "string"
        }
      },
      "title": "ListDirectoryParams",
      "type": "object"
    }
  },
  "searchFiles": {
    "name": "search_files",
    "description": "Search the workspace's files for text or a regular expression. Ignored files are left out. Up to 1000 matches.",
    "parameters": {
      "additionalProperties": false,
      "properties": {
        "pattern": {
          "description": "What to look for.",
          "maxLength": 1000,
          "minLength": 1,
          "title": "Pattern",
          "type": "string"
        },
        "path": {
          "default": ".",
          "description": "Path inside the workspace, relative to it (or absolute below it).",
          "examples": [
            "src/app.py"
          ],
          "maxLength": 4096,
          "minLength": 1,
          "title": "Path",
          "type": "string"
        },
        "regex": {
          "default": false,
          "description": "Take the pattern as a regular expression, not as text.",
          "title": "Regex",
          "type": "boolean"
        },
        "glob": {
          "anyOf": [
            {
              "maxLength": 1000,
              "minLength": 1,
              "type": "string"
            },
            {
              "type": "null"
            }
          ],
          "default": null,
          "description": "Only files whose name fits.",
          "title": "Glob"
        },
        "case_sensitive": {
          "default": true,
          "description": "Whether upper and lower case differ.",
          "title": "Case Sensitive",
          "type": "boolean"
        },
        "max_results": {
          "default": 1000,
          "description": "Stop after so many matches.",
          "maximum": 1000,
          "minimum": 1,
          "title": "Max Results",
          "type": "integer"
        }
      },
      "required": [
        "pattern"
      ],
      "title": "SearchFilesParams",
      "type": "object"
    }
  },
  "searchWeb": {
    "name": "search_web",
    "description": "Search the web. The query leaves the machine, so the user is asked first.",
    "parameters": {
      "additionalProperties": false,
      "properties": {
        "query": {
          "description": "What to search the web for.",
          "maxLength": 400,
          "minLength": 1,
          "title": "Query",
          "type": "string"
        },
        "max_results": {
          "default": 5,
          "description": "How many results to return.",
          "maximum": 20,
          "minimum": 1,
          "title": "Max Results",
          "type": "integer"
        }
      },
      "required": [
        "query"
      ],
      "title": "SearchWebParams",
      "type": "object"
    }
  }
} as const;
