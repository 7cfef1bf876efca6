// Import layers of the page: a folder imports only from folders above it in this list.
const LAYERS = [
  ["base"],
  ["api"],
  ["widgets"],
  ["charts", "canvas"],
  ["state"],
  ["parts"],
  ["screens"],
  ["app", "report", "notebook"],
];
const layersAfter = (index) => LAYERS.slice(index + 1).flat();
const siblings = (index, name) => LAYERS[index].filter((sibling) => sibling !== name);

module.exports = {
  forbidden: [
    { name: "no-cycles", severity: "error", from: {}, to: { circular: true } },
    {
      name: "screens-are-independent",
      severity: "error",
      comment: "Code that two screens share belongs in parts or below.",
      from: { path: "^src/screens/([^/]+)/" },
      to: { path: "^src/screens/[^/]+/", pathNot: "^src/screens/$1/" },
    },
    ...LAYERS.flatMap((names, index) =>
      names.map((name) => ({
        name: `layers-${name}`,
        severity: "error",
        from: { path: `^src/${name}/` },
        to: { path: `^src/(${[...layersAfter(index), ...siblings(index, name)].join("|") || "none"})/` },
      })),
    ),
    {
      name: "report-without-state",
      severity: "error",
      comment: "The report is a file: it has no URL state and no server.",
      from: { path: "^src/report/" },
      to: { path: "^src/(state|parts|screens|canvas)/" },
    },
  ],
  options: { tsConfig: { fileName: "tsconfig.json" }, doNotFollow: { path: "node_modules" }, tsPreCompilationDeps: true },
};
