"use strict";

/** The query as a pattern: its characters as they are, whichever case. Null for nothing to look for. */
function patternOf(query) {
  return query.trim() ? new RegExp(query.trim().replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "giu") : null;
}

/**
 * Look for a pattern in problems, thoughts, solutions and answers, problem by problem; all responses to a problem that has
 * it are found. Yields after each with `found`, which has a
 * 1 for every matching row so far, so that the page stays usable and the search can be left.
 */
async function* search(trajectories, chunks, pattern) {
  const found = new Uint8Array(trajectories.count);
  for (let problem = 0; problem < trajectories.firstRow.length; problem++) {
    const chunk = await chunks.load(problem);
    const ends = chunk.texts.map((text) => firstEnd(text, pattern));
    const isAsked = chunk.question !== null && firstEnd(chunk.question, pattern) < Infinity;
    const isIn = (text, length) => text >= 0 && ends[text] <= length;
    for (let i = 0; i < trajectories.problems.rows[problem]; i++) {
      const answer = chunk.answer[i];
      const isFound =
        isAsked ||
        isIn(chunk.thinking[i], chunk.thinking_length[i]) ||
        isIn(chunk.solution[i], chunk.solution_length[i]) ||
        (answer !== null && firstEnd(answer, pattern) < Infinity);
      if (isFound) found[trajectories.firstRow[problem] + i] = 1;
    }
    yield { found, searched: problem + 1 };
  }
}

/** Where the first match ends: texts are stored once for all that begin alike, and a row's may end before it. */
function firstEnd(text, pattern) {
  const end = pattern.test(text) ? pattern.lastIndex : Infinity;
  pattern.lastIndex = 0; // Whoever marks what was found looks from the start, also while a search goes on.
  return end;
}
