// Header of a screen: title, description and controls.
import type { ComponentChildren } from "preact";

interface Props {
  title: string;
  description?: string | null | undefined;
  children?: ComponentChildren;
}

export function PageHeader({ title, description, children }: Props) {
  return (
    <header class="head">
      <div>
        <h1>{title}</h1>
        {description === undefined || description === null ? null : <p class="muted">{description}</p>}
      </div>
      <div class="tools">{children}</div>
    </header>
  );
}
