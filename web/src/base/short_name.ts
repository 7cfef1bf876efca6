// Short names of kernels, functions and events for tables; the full name is a title and in details.

/** Names that say nothing without the first argument of their template. */
const GENERIC = /^(Kernel2?|device_kernel|kernel|GemmUniversal)$/;
/** What a templated kernel computes. */
const OPERATION = /\w*(?:Functor|Ops?|Impl)(?:_\w+)?(?=[<,>( ]|$)|\w+_kernel(?:_cuda|_impl)?\b/;

/**
 * Shorten a name to what tells it apart: of a C++ kernel, the function and what it computes; of a Python
 * function, the file without its directories.
 */
export function shortName(name: string): string {
  const file = /^(?:[\w.@<>-]*\/)+([^/]+\.\w+\(\d+\): .*)$/.exec(name);
  if (file !== null) return file[1] ?? name;
  const evaluated = /^autograd::engine::evaluate_function: (.+)$/.exec(name);
  if (evaluated !== null) return evaluated[1] ?? name;
  if (!name.startsWith("void ") && !/::.*[<(]|<.*::|^\w+\(.*[*<]|^nccl\w+\(/.test(name)) return name;
  const text = name.replace(/^void /, "").replaceAll("(anonymous namespace)::", "");
  const end = text.search(/[<(]/);
  const path = end < 0 ? text : text.slice(0, end);
  const base = path.split("::").at(-1) ?? path;
  const template = end < 0 || text[end] === "(" ? "" : text.slice(end + 1);
  if (GENERIC.test(base)) return /^(?:\w+::)*(\w+)/.exec(template)?.[1] ?? base;
  const operation = OPERATION.exec(template)?.[0] ?? "";
  return operation === "" || operation === base ? base : `${base}: ${operation}`;
}
