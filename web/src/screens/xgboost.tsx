// A model that XGBoost trains: metrics by round, importance of features, labels and predictions.
import type { ClassScores, ConfusionMatrix, DataSetEvaluation, XgboostView } from "../api/views";
import { capitalize, sentence } from "../base/text";
import { FigurePanel } from "../charts/figure_panel";
import { LinkedTable } from "../parts/linked_table";
import { rowKey } from "../parts/row_key";
import { useText } from "../parts/url_options";
import { useView } from "../state/fetch";
import { column, columns } from "../widgets/fields";
import { Answer, PageHeader } from "../widgets/page_header";
import { EmptyState, QualityNotes, ResourceView } from "../widgets/resource_view";
import { Select } from "../widgets/select";
import { importanceFigure, labelFigure, metricPlots, predictionFigures } from "./xgboost/figures";

export default function Xgboost() {
  const [model, setModel] = useText("model");
  const [rank, name] = model.split(" ", 2);
  const resource = useView("xgboost", name === undefined ? {} : { rank: rank ?? null, name });
  const models = resource.data?.models ?? [];
  const choices = models.map((row) => [keyOf(row), models.some((candidate) => candidate.rank !== row.rank) ? `rank ${row.rank}, ${row.name}` : row.name] as const);
  const shown = models.find((row) => row.name === resource.data?.name && row.rank === resource.data.rank);
  return (
    <>
      <PageHeader title="XGBoost">
        {choices.length < 2 || shown === undefined ? null : <Select label="Model" value={keyOf(shown)} choices={choices} onChange={setModel} />}
      </PageHeader>
      <ResourceView resource={resource}>{(payload) => <Content payload={payload} />}</ResourceView>
    </>
  );
}

/** Rank and number of a model, as in the URL. */
function keyOf({ rank, name }: { rank: number; name: string }): string {
  return `${rank} ${name.replace("model ", "")}`;
}

function Content({ payload }: { payload: XgboostView }) {
  if (payload.missing !== null) return <EmptyState title="No XGBoost model" text={payload.missing} />;
  const { trees } = payload;
  return (
    <>
      <Answer text={payload.sentence} />
      <QualityNotes quality={[]} range={payload.range} notes={payload.notes} />
      <LinkedTable
        title="Models"
        testid="table-models"
        rows={payload.models}
        keyOf={(row) => rowKey(row.name, row.rank)}
        fields={columns("ModelRow", "name", "rank", "objective", "booster", "class_count", "data", "row_count", "column_count")}
        renderSelected={(row) => <p class="muted">{sentence(`parameters: ${Object.entries(row.parameters).map(([name, value]) => `${name}=${value}`).join(", ")}`)}</p>}
      />
      <div class="panels">
        {metricPlots(payload.metrics).map((plot) => <FigurePanel key={plot.title} block={plot} />)}
        {trees === null ? null : (
          <FigurePanel block={{
            kind: "plot", title: "Depth of the trees", x: { name: "round", unit: "count" }, y: { name: "levels of splits", unit: "count" },
            series: [{ name: "deepest tree of the round", x: trees.round, y: trees.depth }],
          }} />
        )}
        {payload.labels.map((labels) => <FigurePanel key={labels.data_set} block={labelFigure(labels)} />)}
        {payload.importance.map((importance) => <FigurePanel key={importance.measure} block={importanceFigure(importance)} />)}
      </div>
      {payload.data_sets.map((evaluation) => <Predictions key={evaluation.data_set} evaluation={evaluation} />)}
    </>
  );
}

function Predictions({ evaluation }: { evaluation: DataSetEvaluation }) {
  const { data_set, confusion } = evaluation;
  return (
    <section aria-label={`Predictions for ${data_set}`} data-testid="predictions">
      <header class="head section-title"><h2 class="name">{`Predictions for ${data_set}`}</h2></header>
      <div class="panels">
        {predictionFigures(evaluation).map((block) => <FigurePanel key={block.title} block={block} />)}
      </div>
      {confusion === null ? null : <Scores data_set={data_set} confusion={confusion} />}
    </section>
  );
}

/** Upper bound of the classes whose rows by predicted class are columns. */
const MAX_CLASSES = 12;

function Scores({ data_set, confusion }: { data_set: string; confusion: ConfusionMatrix }) {
  const { matrix, classes, averages } = confusion;
  const predicted = matrix.length > MAX_CLASSES ? [] : matrix.map(({ label }, index) =>
    column<ClassScores>(`predicted-${index}`, `predicted ${label}`, "count", (row) => matrix[classes.indexOf(row)]?.predicted_count[index] ?? null));
  return (
    <LinkedTable
      id={`scores-${data_set}`}
      title={capitalize(`scores for ${data_set}`)}
      testid="table-scores"
      rows={[...classes, ...averages]}
      fields={[
        ...columns("ClassScores", ["label", { value: (row: ClassScores) => (averages.includes(row) ? `${row.label} average` : row.label) }], "row_count"),
        ...predicted,
        ...columns("ClassScores", "predicted_count", "precision_ratio", "recall_ratio", "f1_ratio"),
      ]}
      footnote="Precision, recall and F1 of all classes together (micro average) are the accuracy."
    />
  );
}
