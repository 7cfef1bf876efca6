// Labelled selection of one of several values.

/** A value with its label, or a value that is its own label. */
export type Choice<Value extends string> = Value | readonly [Value, string];

interface Props<Value extends string> {
  label: string;
  value: Value;
  choices: readonly Choice<Value>[];
  onChange: (value: Value) => void;
}

export function Select<Value extends string>({ label, value, choices, onChange }: Props<Value>) {
  return (
    <label class="choice">
      <span>{label}</span>
      <select value={value} onChange={(event) => { onChange(event.currentTarget.value as Value); }}>
        {choices.map((choice) => {
          const [key, text] = typeof choice === "string" ? [choice, choice] : choice;
          return <option key={key} value={key}>{text}</option>;
        })}
      </select>
    </label>
  );
}
