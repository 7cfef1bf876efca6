// Table of contents of the report.
import type { Section } from "../api/report";

export function Contents({ sections }: { sections: Section[] }) {
  return (
    <nav class="contents" aria-label="Contents">
      <ol>
        <li><a href="#verdict">Verdict</a></li>
        {sections.map((section) => (
          <li key={section.id}>
            <a href={`#${section.id}`}>{section.title}</a>
            {section.sections.length === 0 ? null : (
              <ol>
                {section.sections.map((subsection) => (
                  <li key={subsection.id}><a href={`#${subsection.id}`}>{subsection.title}</a></li>
                ))}
              </ol>
            )}
          </li>
        ))}
      </ol>
    </nav>
  );
}
