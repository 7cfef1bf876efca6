// Section of the report with its subsections.
import type { Section } from "../api/report";
import { BlockView } from "./block";

const MAX_HEADING_LEVEL = 4;

export function SectionView({ section, level }: { section: Section; level: number }) {
  const Heading = `h${Math.min(level, MAX_HEADING_LEVEL)}` as "h2" | "h3" | "h4";
  return (
    <section id={section.id} class={`level${level}`} aria-labelledby={`${section.id}-title`}>
      <Heading id={`${section.id}-title`}>{section.title}</Heading>
      <div class="blocks">
        {section.blocks.map((block, index) => <BlockView key={index} block={block} />)}
      </div>
      {section.sections.map((subsection) => (
        <SectionView key={subsection.id} section={subsection} level={level + 1} />
      ))}
    </section>
  );
}
