// Labelled selection of one of several values.
interface Props {
  label: string;
  value: string;
  /** Values with their labels. */
  choices: readonly (readonly [string, string])[];
  onChange: (value: string) => void;
}

export function Select({ label, value, choices, onChange }: Props) {
  return (
    <label class="choice">
      <span>{label}</span>
      <select value={value} onChange={(event) => { onChange(event.currentTarget.value); }}>
        {choices.map(([key, words]) => <option key={key} value={key}>{words}</option>)}
      </select>
    </label>
  );
}
