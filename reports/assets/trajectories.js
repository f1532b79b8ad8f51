"use strict";

/**
 * The index: a row per trajectory, sorted by problem, sample, model, strategy and budget; and tracks, which are the rows
 * of one sample, model and strategy from the smallest budget to the largest.
 */
class Trajectories {
  constructor({ problems, numbers, names, phrase, wording }) {
    Object.assign(this, { problems, numbers, names, phrase, wording });
    this.count = numbers.sample.length;
    this.problemOf = new Uint32Array(this.count);
    this.firstRow = [];
    let row = 0;
    problems.rows.forEach((height, problem) => {
      this.firstRow.push(row);
      this.problemOf.fill(problem, row, row + height);
      row += height;
    });
    this.tracks = [];
    this.trackOf = new Uint32Array(this.count);
    for (row = 0; row < this.count; row++) {
      if (row === 0 || !this.#sameTrack(row - 1, row)) this.tracks.push({ first: row, end: row });
      this.tracks.at(-1).end = row + 1;
      this.trackOf[row] = this.tracks.length - 1;
    }
  }

  #sameTrack(a, b) {
    const { model, strategy } = this.names;
    return this.sameSample(a, b) && model.rows[a] === model.rows[b] && strategy.rows[a] === strategy.rows[b];
  }

  sameSample(a, b) {
    return this.problemOf[a] === this.problemOf[b] && this.numbers.sample[a] === this.numbers.sample[b];
  }

  /** "model", "strategy", "think_finish", "solution_finish" or "grade_status" of a row. */
  name(column, row) {
    return this.names[column].values[this.names[column].rows[row]];
  }

  benchmark(row) {
    return this.problems.benchmark[this.problemOf[row]];
  }

  problem(row) {
    return this.problems.id[this.problemOf[row]];
  }

  isRight(row) {
    return this.numbers.score[row] === 1;
  }

  /** Whether we wrote the think-end. */
  isForced(row) {
    return ["forced", "end_of_text"].includes(this.name("think_finish", row)) && this.numbers.forced_tokens[row] > 0;
  }

  outcome(row) {
    const score = this.numbers.score[row];
    return score === 1 ? "right" : score > 0 ? "partial" : "wrong";
  }

  /** As the pipeline writes budgets: "48+32", "unlimited". */
  budget(row) {
    const [think, solution] = [this.numbers.think_budget[row], this.numbers.solution_budget[row]];
    return think === null && solution === null ? "unlimited" : `${think ?? "unlimited"}+${solution ?? "unlimited"}`;
  }

  /** A row of every budget. */
  budgets() {
    const found = new Map();
    for (let row = 0; row < this.count; row++) if (!found.has(this.budget(row))) found.set(this.budget(row), row);
    return found;
  }

  /** What tells a row from all others, as texts: benchmark, problem, sample, model, strategy, budget. */
  key(row) {
    const [model, strategy] = [this.name("model", row), this.name("strategy", row)];
    return [this.benchmark(row), this.problem(row), String(this.numbers.sample[row]), model, strategy, this.budget(row)];
  }

  /** The row of a key; null where there is none. */
  find(key) {
    for (let row = 0; row < this.count; row++) if (this.key(row).every((part, i) => part === key[i])) return row;
    return null;
  }

  /** [budget, row] from the smallest budget to the largest, unlimited ones last, of a map from budgets to a row each. */
  sortedBudgets(rows) {
    const { think_budget, solution_budget } = this.numbers;
    const size = (budget) => budget ?? Infinity;
    const difference = (a, b) => (a === b ? 0 : a - b);
    return [...rows].sort(
      ([, a], [, b]) =>
        difference(size(think_budget[a]), size(think_budget[b])) ||
        difference(size(solution_budget[a]), size(solution_budget[b])),
    );
  }

  /** A track's rows. */
  rows(track) {
    const { first, end } = this.tracks[track];
    return Array.from({ length: end - first }, (_, i) => first + i);
  }

  /** The tracks of the row's problem and sample, of every model and strategy. */
  siblings(row) {
    let [first, last] = [this.trackOf[row], this.trackOf[row]];
    while (first > 0 && this.sameSample(this.tracks[first - 1].first, row)) first--;
    while (last + 1 < this.tracks.length && this.sameSample(this.tracks[last + 1].first, row)) last++;
    return Array.from({ length: last - first + 1 }, (_, i) => first + i);
  }

  /** How often from one budget to the next an answer changes, and how often a right one is lost. */
  #flips(track) {
    const rows = this.rows(track).slice(1);
    const lost = rows.filter((row) => this.isRight(row - 1) && !this.isRight(row)).length;
    return [rows.filter((row) => this.isRight(row) !== this.isRight(row - 1)).length, lost];
  }

  /** The most surprising first: where a larger budget loses right answers, then where answers change. */
  #bySurprise(tracks) {
    const flips = new Map(tracks.map((track) => [track, this.#flips(track)]));
    const [all, lost] = [(track) => flips.get(track)[0], (track) => flips.get(track)[1]];
    return tracks.sort((a, b) => lost(b) - lost(a) || all(b) - all(a) || a - b);
  }

  /** A row to open first: a surprising one of this benchmark and model under separate budgeting; null without any. */
  interesting({ benchmark, model, budget }) {
    const wanted = { benchmark, problem: "", sample: "", model, strategy: "separate" };
    const tracks = Array.from(this.tracks.keys()).filter((track) => this.#isAsked(track, wanted));
    if (tracks.length === 0) return null;
    const rows = this.rows(this.#bySurprise(tracks)[0]);
    return rows.find((row) => this.budget(row) === budget) ?? rows[Math.min(1, rows.length - 1)];
  }

  /** Whether a track is among those asked for by benchmark, problem, sample, model and strategy ("" is any). */
  #isAsked(track, { benchmark, problem, sample, model, strategy, flips }) {
    const row = this.tracks[track].first;
    return (
      (benchmark === "" || this.benchmark(row) === benchmark) &&
      (problem === "" || this.problemOf[row] === Number(problem)) &&
      (sample === "" || this.numbers.sample[row] === Number(sample)) &&
      (model === "" || this.name("model", row) === model) &&
      (strategy === "" || this.name("strategy", row) === strategy) &&
      (!flips || this.#flips(track)[0] > 0)
    );
  }

  /**
   * Tracks with rows that match. `wanted` has the criteria by the names of the form's fields; `found` holds a 1 for each
   * row that a search found, or is null without a search.
   */
  matching(wanted, found) {
    const isMatch = (row) =>
      (wanted.budget === "" || this.budget(row) === wanted.budget) &&
      (!wanted.wrong || !this.isRight(row)) &&
      (!wanted.forced || this.isForced(row)) &&
      (!found || found[row] === 1);
    const tracks = [];
    const rows = new Uint8Array(this.count);
    let numRows = 0;
    for (let track = 0; track < this.tracks.length; track++) {
      if (!this.#isAsked(track, wanted)) continue;
      const { first, end } = this.tracks[track];
      const before = numRows;
      for (let row = first; row < end; row++) {
        if (!isMatch(row)) continue;
        rows[row] = 1;
        numRows++;
      }
      if (numRows > before) tracks.push(track);
    }
    return { tracks: wanted.flips ? this.#bySurprise(tracks) : tracks, rows, numRows };
  }
}
