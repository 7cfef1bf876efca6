// The project's vocabulary as lint rules; the lists are in tools/language.json.
//   names     a binding is not a pronoun, determiner or bare participle; bounds are MAX_…, MIN_…
//             or …_LIMIT
//   words     no archaic words in comments, strings and JSX text
//   comments  a doc comment opens with a noun phrase or a verb, not with a question word
import { readFileSync } from "node:fs";

const LISTS = JSON.parse(readFileSync(new URL("../../tools/language.json", import.meta.url), "utf8"));
const NAMES = new Set(LISTS.names);
const BOUND = new RegExp(`^(${LISTS.bounds.join("|")})(_|$)`);
const ARCHAIC = new RegExp(`\\b(${LISTS.archaic_words.join("|")})\\b`, "gi");
const QUESTION = new RegExp(`^(${LISTS.question_words.join("|")})\\b`);

/** Identifiers that a pattern binds. */
function* identifiersOf(pattern) {
  switch (pattern?.type) {
    case "Identifier": yield pattern; break;
    case "ObjectPattern": for (const property of pattern.properties) yield* identifiersOf(property.value ?? property.argument); break;
    case "ArrayPattern": for (const element of pattern.elements) yield* identifiersOf(element); break;
    case "AssignmentPattern": yield* identifiersOf(pattern.left); break;
    case "RestElement": yield* identifiersOf(pattern.argument); break;
    case "TSParameterProperty": yield* identifiersOf(pattern.parameter); break;
  }
}

const names = {
  meta: { type: "suggestion", schema: [] },
  create(context) {
    const check = (pattern) => {
      for (const node of identifiersOf(pattern)) {
        const { name } = node;
        if (NAMES.has(name.replaceAll(/^_+|_+$/g, ""))) context.report({ node, message: `Name the thing instead of \`${name}\`.` });
        if (BOUND.test(name)) context.report({ node, message: `Name the bound MAX_…, MIN_… or …_LIMIT instead of \`${name}\`.` });
      }
    };
    const checkFunction = (node) => {
      check(node.id);
      node.params.forEach(check);
    };
    return {
      VariableDeclarator: (node) => { check(node.id); },
      FunctionDeclaration: checkFunction,
      FunctionExpression: checkFunction,
      ArrowFunctionExpression: checkFunction,
      TSFunctionType: checkFunction,
      TSMethodSignature: checkFunction,
      TSEmptyBodyFunctionExpression: checkFunction,
      TSDeclareFunction: checkFunction,
      PropertyDefinition: (node) => { check(node.key); },
      ClassDeclaration: (node) => { check(node.id); },
      CatchClause: (node) => { check(node.param); },
      ImportSpecifier: (node) => { check(node.local); },
      ImportDefaultSpecifier: (node) => { check(node.local); },
      ImportNamespaceSpecifier: (node) => { check(node.local); },
    };
  },
};

const words = {
  meta: { type: "suggestion", schema: [] },
  create(context) {
    const check = (node, text) => {
      for (const [word] of text.matchAll(ARCHAIC)) context.report({ node, message: `Replace the archaic word "${word}".` });
    };
    return {
      Program: () => { for (const comment of context.sourceCode.getAllComments()) check(comment, comment.value); },
      Literal: (node) => { if (typeof node.value === "string") check(node, node.value); },
      TemplateElement: (node) => { check(node, node.value.raw); },
      JSXText: (node) => { check(node, node.value); },
    };
  },
};

const comments = {
  meta: { type: "suggestion", schema: [] },
  create(context) {
    return {
      Program: () => {
        for (const comment of context.sourceCode.getAllComments()) {
          const opening = /^\*?\s*(\S+)/.exec(comment.value)?.[1] ?? "";
          const isDocumentation = comment.value.startsWith("*") || comment.range[0] === 0;
          if (isDocumentation && QUESTION.test(opening)) context.report({ node: comment, message: `Open the comment with a noun or a verb instead of "${opening}".` });
        }
      },
    };
  },
};

export default { rules: { names, words, comments } };
