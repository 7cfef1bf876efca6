// Header of a screen: title, description and controls.
import type { ComponentChildren } from "preact";

interface Props {
  title: string;
  about?: string | null | undefined;
  children?: ComponentChildren;
}

export function PageHeader({ title, about, children }: Props) {
  return (
    <header class="head">
      <div>
        <h1>{title}</h1>
        {about === undefined || about === null ? null : <p class="muted">{about}</p>}
      </div>
      <div class="tools">{children}</div>
    </header>
  );
}
