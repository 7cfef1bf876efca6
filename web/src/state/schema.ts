// Views and their payloads as the server describes them: also those that this page was built without.
import { capitalize, words } from "../base/text";
import { LABELS, type FieldLabel } from "../api/labels";

export type Json = string | number | boolean | null | Json[] | JsonObject;
export interface JsonObject {
  [name: string]: Json;
}

/** JSON Schema, as far as the page reads it. */
export interface Schema {
  $ref?: string;
  anyOf?: Schema[];
  allOf?: Schema[];
  items?: Schema;
  additionalProperties?: Schema | boolean;
  properties?: Record<string, Schema>;
  enum?: string[];
  default?: string;
  title?: string;
  description?: string;
  "x-unit"?: string;
  "x-display"?: string;
}

/** Option of a view. */
export interface ViewOption {
  name: string;
  required: boolean;
  schema: Schema;
}

interface Operation {
  summary: string;
  description?: string;
  parameters: ViewOption[];
  responses: Record<string, { content: Record<string, { schema: Schema }> }>;
}

/** OpenAPI document of the server. */
export interface OpenApi {
  paths: Record<string, { get?: Operation }>;
  components: { schemas: Record<string, Schema> };
}

/** View of a run. */
export interface ViewDescription {
  name: string;
  title: string;
  description: string;
  options: ViewOption[];
  payload: Structure;
}

const VIEW_PATH = "/api/views/";

/** Return all views of the document, in its order. */
export function describeViews({ paths, components }: OpenApi): ViewDescription[] {
  return Object.entries(paths).flatMap(([path, { get }]) => {
    if (!path.startsWith(VIEW_PATH) || get === undefined) return [];
    const name = path.slice(VIEW_PATH.length);
    return [{
      name,
      title: get.summary,
      description: capitalize((get.description ?? "").replace(/^Show /, "")),
      options: get.parameters.filter((parameter) => parameter.name !== "run"),
      payload: new Structure(get.responses["200"]?.content["application/json"]?.schema ?? {}, components.schemas),
    }];
  });
}

/** Description of an object, or of the objects in a list or a map. Fields without a label are
 * titled by their names. */
export class Structure {
  private readonly properties: Record<string, Schema>;
  /** Labels of the fields of a built-in type, without what only readers of JSON need. */
  private readonly labels: Record<string, FieldLabel>;

  constructor(
    private readonly schema: Schema,
    private readonly components: Record<string, Schema>,
  ) {
    const reference = referenceOf(schema);
    this.labels = (LABELS as Record<string, Record<string, FieldLabel>>)[reference ?? ""] ?? {};
    this.properties = (reference === undefined ? schema : components[reference])?.properties ?? {};
  }

  /** True if the keys of the object are data. */
  get isMap(): boolean {
    return alternatives(this.schema).some(({ additionalProperties }) => typeof additionalProperties === "object");
  }

  /** Label of a field; `unit` applies to numbers that inherit theirs, such as the statistics of a duration. */
  label(name: string, unit = "none"): FieldLabel {
    const { title = words(name), description: fullDescription, "x-unit": declaredUnit = "none", "x-display": display } = this.properties[name] ?? {};
    const description = name in this.labels ? this.labels[name]?.description : fullDescription;
    return {
      title,
      unit: declaredUnit === "inherited" ? unit : declaredUnit,
      ...(display === undefined ? {} : { display }),
      ...(description === undefined ? {} : { description }),
    };
  }

  /** Describe the object or objects in a field. */
  child(name: string): Structure {
    return new Structure(this.properties[name] ?? {}, this.components);
  }
}

function alternatives(schema: Schema): Schema[] {
  return [schema, ...(schema.anyOf ?? []), ...(schema.allOf ?? [])];
}

/** Return the name of the first object type in a schema. */
function referenceOf(schema: Schema): string | undefined {
  for (const { $ref, items, additionalProperties } of alternatives(schema)) {
    if ($ref !== undefined) return $ref.slice($ref.lastIndexOf("/") + 1);
    const inner = items ?? additionalProperties;
    const reference = typeof inner === "object" ? referenceOf(inner) : undefined;
    if (reference !== undefined) return reference;
  }
  return undefined;
}
