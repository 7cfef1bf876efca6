"""Extensions of stepscope: a rule, an importer of metrics in JSON lines, an exporter of steps."""
