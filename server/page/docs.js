// What the server serves, drawn from its own two descriptions: openapi.json for HTTP, v1/schema.json for live streams.

import { setUpTheme } from "./theme.js";

const EXAMPLES = {
  "/v1/transcribe": (origin) => `curl -F file=@talk.mp3 "${origin}/v1/transcribe?format=srt"`,
  "/v1/audio/transcriptions": (origin) => `curl -F file=@talk.mp3 -F model=any -F response_format=text ${origin}/v1/audio/transcriptions`,
};
const WAYS = { ControlMessage: "in", ServerMessage: "out" };

const main = document.getElementById("docs");

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children.filter((child) => child !== null));
  return made;
}

// ---------------------------------------------------------------- what a value may be
function kind(schema, defs) {
  if (schema.$ref) return kind(defs[schema.$ref.split("/").pop()] ?? {}, defs);
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.join(", ");
  if (schema.anyOf) return [...new Set(schema.anyOf.map((each) => kind(each, defs)))].filter((each) => each !== "null").join(" or ");
  if (schema.type === "array") return schema.items ? `list of ${kind(schema.items, defs)}` : "list";
  if (schema.minimum !== undefined) return `${schema.type}, ${schema.minimum}..${schema.maximum ?? ""}`;
  if (schema.maxLength !== undefined) return `${schema.type}, up to ${schema.maxLength} characters`;
  return schema.title && schema.type === "object" ? schema.title : (schema.type ?? "any");
}

function table(rows) {
  if (!rows.length) return null;
  const head = element("tr", {}, ...["name", "value", "default", ""].map((text) => element("th", { textContent: text })));
  const body = rows.map(([name, value, fallback, text]) =>
    element("tr", {}, element("td", {}, element("code", { textContent: name })), ...[value, fallback, text].map((each) => element("td", { textContent: each }))),
  );
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
}

// `code` between backticks
const withCode = (text) => text.split("`").map((part, index) => (index % 2 ? element("code", { textContent: part }) : part));
const shown = (value) => (value === undefined || value === null ? "" : JSON.stringify(value).replaceAll('"', ""));

function card(method, name, summary, ...inside) {
  const badge = element("span", { className: "method", textContent: method });
  badge.dataset.method = method;
  const title = element("summary", {}, badge, element("code", { textContent: name }), element("span", {}, ...withCode(summary)));
  return element("details", { className: "card" }, title, element("div", {}, ...inside));
}

// ---------------------------------------------------------------- HTTP
function operation(path, method, told) {
  const rows = (told.parameters ?? []).map((each) => [each.name, kind(each.schema, {}), shown(each.schema.default), each.description ?? ""]);
  const bodies = Object.keys(told.requestBody?.content ?? {});
  const example = EXAMPLES[path]?.(location.origin) ?? (method === "get" ? `curl ${location.origin}${path}` : null);
  return card(
    method, path, told.summary ?? "",
    told.description ? element("p", {}, ...withCode(told.description)) : null,
    bodies.length ? element("p", { textContent: `Body: ${bodies.join(" or ")}` }) : null,
    example ? element("pre", { textContent: example }) : null,
    table(rows),
  );
}

async function showHttp() {
  const api = await fetched("openapi.json");
  const found = Object.entries(api.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, told]) => ({ path, method, told })));
  for (const tag of [...new Set(found.map(({ told }) => told.tags?.[0] ?? "more"))]) {
    main.append(element("h2", { textContent: tag[0].toUpperCase() + tag.slice(1) }));
    for (const { path, method, told } of found) if ((told.tags?.[0] ?? "more") === tag) main.append(operation(path, method, told));
  }
}

// ---------------------------------------------------------------- live streams
function message(definition, way, defs) {
  const rows = Object.entries(definition.properties)
    .filter(([field]) => field !== "type")
    .map(([field, schema]) => [field, kind(schema, defs), shown(schema.default), ""]);
  return card(way, definition.properties.type.const, definition.description ?? "", table(rows));
}

async function showStream() {
  const { $defs: defs } = await fetched("v1/schema.json");
  main.append(element("h2", { textContent: "Live streams: a WebSocket at /v1/stream" }));
  main.append(element("p", { textContent: "Audio goes in as binary frames, everything else as JSON objects told apart by their type." }));
  for (const [union, way] of Object.entries(WAYS)) {
    for (const { $ref: reference } of defs[union].oneOf) main.append(message(defs[reference.split("/").pop()], way, defs));
  }
}

async function fetched(address) {
  const key = sessionStorage.getItem("key");
  const answer = await fetch(address, key ? { headers: { Authorization: `Bearer ${key}` } } : {});
  if (!answer.ok) throw new Error(`${address}: ${answer.status === 401 ? "the server wants an API key; give it on the page first" : answer.status}`);
  return answer.json();
}

setUpTheme(document.getElementById("theme"), () => {});
for (const show of [showStream, showHttp]) {
  try {
    await show();
  } catch (error) {
    document.getElementById("problem").textContent = `Some of this page is missing: ${error.message}.`;
    document.getElementById("problem").hidden = false;
  }
}
document.documentElement.dataset.ready = "true";
