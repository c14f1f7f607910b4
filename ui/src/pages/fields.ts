// The form of a tool's parameters, from the JSON Schema in the catalogue, and what was typed back to parameters. What is
// left empty is left out. It judges nothing: whether a value is allowed is for the gate to say.

export type FieldKind = "line" | "text" | "number" | "choice" | "yes";

export interface Field {
  name: string;
  kind: FieldKind;
  description: string;
  required: boolean;
  choices: string[];
  /** What holds when it is left empty, to show in the empty field. */
  usual: string;
}

export type Typed = Record<string, string | boolean>;

type Schema = Record<string, unknown>;

const isSchema = (value: unknown): value is Schema =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const text = (value: unknown) => (typeof value === "string" ? value : "");

export function fieldsOf(parameters: Schema): Field[] {
  const properties = isSchema(parameters.properties) ? parameters.properties : {};
  const required = Array.isArray(parameters.required) ? parameters.required : [];
  return Object.entries(properties).map(([name, told]) => {
    const schema = isSchema(told) ? told : {};
    const { kind, choices } = kindOf(name, schema);
    const usual = schema.default;
    return {
      name,
      kind,
      description: text(schema.description),
      required: required.includes(name),
      choices,
      usual: usual === undefined || usual === null ? "" : String(usual),
    };
  });
}

function kindOf(name: string, schema: Schema): { kind: FieldKind; choices: string[] } {
  if (Array.isArray(schema.enum)) return { kind: "choice", choices: schema.enum.map(String) };
  const options = Array.isArray(schema.anyOf) ? schema.anyOf.filter(isSchema) : [];
  const type = schema.type ?? options.find((option) => option.type !== "null")?.type;
  if (type === "boolean") return { kind: "yes", choices: [] };
  if (type === "integer" || type === "number") return { kind: "number", choices: [] };
  return { kind: name === "content" ? "text" : "line", choices: [] };
}

/** The parameters as typed. A number that is none stays text, so that the gate can say so. */
export function paramsOf(fields: Field[], typed: Typed): Record<string, unknown> {
  const params: Record<string, unknown> = {};
  for (const field of fields) {
    const value = typed[field.name];
    if (field.kind === "yes") {
      const wanted = value ?? field.usual === "true";
      if (wanted !== (field.usual === "true")) params[field.name] = wanted;
    } else if (typeof value === "string" && (value !== "" || (field.required && field.kind === "text"))) {
      params[field.name] = field.kind === "number" && Number.isFinite(Number(value)) ? Number(value) : value;
    }
  }
  return params;
}
