"use strict";

const MAX_MARKS = 500;
const MAX_GHOST = 4000; // characters

/** What a model wrote, with what a pattern finds in it marked. */
function written(text, pattern, className = "written") {
  const span = make("span", { className, dir: "auto" });
  let end = 0;
  if (pattern) {
    for (const match of [...text.matchAll(pattern)].slice(0, MAX_MARKS)) {
      span.append(text.slice(end, match.index), make("mark", {}, match[0]));
      end = match.index + match[0].length;
    }
  }
  span.append(text.slice(end));
  return span;
}

/** What the pipeline wrote, its line breaks made visible. */
function insertion(text) {
  const shown = text.replaceAll("\n", "⏎\n");
  return make("span", { className: "insertion", title: "written by the pipeline, not by the model" }, shown);
}

/** A count with its noun: "1 token", "2 tokens". */
function counted(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

/** A remark of the page inside a text: where it was cut, how it ended. */
function note(text, className) {
  return make("span", { className: `note ${className}` }, text);
}

/**
 * The thought of row i of a problem's chunk: what was sampled, how it ended, and how it went on under a larger budget
 * of the same track.
 */
function thoughtOf(trajectories, chunk, i, row, pattern) {
  const whole = chunk.texts[chunk.thinking[i]] ?? "";
  const length = chunk.thinking_length[i];
  const tokens = counted(trajectories.numbers.think_tokens[row], "token");
  const closing = chunk.closing[i];
  const parts = [written(whole.slice(0, length), pattern)];
  switch (trajectories.name("think_finish", row)) {
    case "closed":
      if (!closing) parts.push(note("closed by the model", "end"));
      break;
    case "forced":
      parts.push(note(`cut after ${tokens}`, "cut"));
      break;
    case "end_of_text":
      parts.push(note("the model stopped here", "cut"));
      break;
    case "length":
      parts.push(note(`cut after ${tokens}, never closed`, "cut"));
  }
  if (closing) parts.push(insertion(chunk.phrase[i] ? "end" : `end, ${counted(closing, "token")}`));
  const rest = whole.slice(length, length + MAX_GHOST);
  if (rest) {
    const more = whole.length > length + MAX_GHOST ? " …" : "";
    parts.push(make("div", { className: "ghost" }, note("under a larger budget it went on:", "more"), written(rest + more, pattern)));
  }
  return parts;
}

/** The solution of row i of a problem's chunk. */
function solutionOf(trajectories, chunk, i, row, pattern) {
  if (chunk.solution[i] < 0) return [note("no solution was begun", "none")];
  const text = chunk.texts[chunk.solution[i]].slice(0, chunk.solution_length[i]);
  const parts = chunk.phrase[i] ? [insertion(trajectories.phrase)] : [];
  parts.push(written(text, pattern));
  const isCut = trajectories.name("solution_finish", row) === "length";
  const tokens = counted(trajectories.numbers.solution_tokens[row], "token");
  parts.push(isCut ? note(`cut after ${tokens}`, "cut") : note("end", "end"));
  return parts;
}
