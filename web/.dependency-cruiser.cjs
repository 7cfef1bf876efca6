// The front end's arrows: a folder imports only what stands below it.
const LAYERS = [
  ["base"],
  ["api"],
  ["widgets"],
  ["charts", "canvas"],
  ["state"],
  ["parts"],
  ["screens"],
  ["app", "report"],
];
const above = (place) => LAYERS.slice(place + 1).flat();
const beside = (place, name) => LAYERS[place].filter((each) => each !== name);

module.exports = {
  forbidden: [
    { name: "no-circles", severity: "error", from: {}, to: { circular: true } },
    {
      name: "screens-apart",
      severity: "error",
      comment: "What two screens need stands below them.",
      from: { path: "^src/screens/([^/]+)/" },
      to: { path: "^src/screens/[^/]+/", pathNot: "^src/screens/$1/" },
    },
    ...LAYERS.flatMap((names, place) =>
      names.map((name) => ({
        name: `arrows-${name}`,
        severity: "error",
        from: { path: `^src/${name}/` },
        to: { path: `^src/(${[...above(place), ...beside(place, name)].join("|") || "none"})/` },
      })),
    ),
    {
      name: "report-without-state",
      severity: "error",
      comment: "The report is a file: no address, no server.",
      from: { path: "^src/report/" },
      to: { path: "^src/(state|parts|screens|canvas)/" },
    },
  ],
  options: { tsConfig: { fileName: "tsconfig.json" }, doNotFollow: { path: "node_modules" }, tsPreCompilationDeps: true },
};
