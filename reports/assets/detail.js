"use strict";

const OUTCOME_SIGNS = { right: "✓", partial: "½", wrong: "✗" };

/** One trajectory, and the way to its neighbours: the same sample under other budgets, strategies and models. */
class Detail {
  /** `choose` is told the row that was asked for. */
  constructor(article, trajectories, chunks, choose) {
    Object.assign(this, { article, trajectories, chunks, choose, row: null, pattern: null });
    this.title = make("h3");
    this.question = make("details", { className: "question", open: true });
    this.grid = make("div", { className: "scroll grid" });
    this.slider = make("input", { type: "range", min: 0, step: 1, ariaLabel: "Budget" });
    this.smaller = make("button", { type: "button", ariaLabel: "Smaller budget" }, "◀");
    this.larger = make("button", { type: "button", ariaLabel: "Larger budget" }, "▶");
    this.budget = make("output");
    this.facts = make("dl", { className: "facts" });
    this.thought = make("div", { className: "text", tabIndex: 0, role: "region", ariaLabel: "Thought" });
    this.solution = make("div", { className: "text", tabIndex: 0, role: "region", ariaLabel: "Solution" });
    const ghosts = make("input", { type: "checkbox", checked: true });
    ghosts.addEventListener("change", () => this.thought.classList.toggle("without-ghost", !ghosts.checked));
    this.ghosts = make("label", { className: "check" }, ghosts, " how it went on");
    const pane = (name, text, ...more) =>
      make("section", {}, make("div", { className: "pane-head" }, make("h4", {}, name), ...more), text);
    article.replaceChildren(
      this.title,
      this.question,
      this.grid,
      make("div", { className: "stepper" }, this.smaller, this.slider, this.larger, this.budget),
      this.facts,
      make("div", { className: "panes" }, pane("Thought", this.thought, this.ghosts), pane("Solution", this.solution)),
    );
    this.slider.addEventListener("input", () => this.choose(this.#steps()[Number(this.slider.value)]));
    this.smaller.addEventListener("click", () => this.step(-1));
    this.larger.addEventListener("click", () => this.step(1));
  }

  #steps() {
    return this.trajectories.rows(this.trajectories.trackOf[this.row]);
  }

  /** To the next smaller (-1) or larger (1) budget, if there is one. */
  step(by) {
    const row = this.#steps()[this.#steps().indexOf(this.row) + by];
    if (row !== undefined) this.choose(row);
  }

  clear() {
    this.row = null;
    this.article.hidden = true;
  }

  /** Open a row; what the pattern finds in it is marked. */
  async show(row, pattern) {
    if (this.row === row && this.pattern === pattern) return; // It stays as the reader has scrolled it.
    const { trajectories } = this;
    const isOtherSample = this.row === null || !trajectories.sameSample(this.row, row);
    Object.assign(this, { row, pattern });
    this.article.hidden = false;
    this.#showTitle(row);
    if (isOtherSample) this.grid.replaceChildren(this.#gridOf(row));
    this.#showStep(row);
    const problem = trajectories.problemOf[row];
    const chunk = await this.chunks.load(problem);
    if (this.row !== row || this.pattern !== pattern) return; // Another one was chosen meanwhile.
    const i = row - trajectories.firstRow[problem];
    this.question.hidden = chunk.question === null;
    this.question.replaceChildren(make("summary", {}, "Problem"), written(chunk.question ?? "", pattern));
    this.facts.replaceChildren(...this.#factsOf(chunk, i, row));
    this.thought.replaceChildren(...thoughtOf(trajectories, chunk, i, row, pattern));
    this.solution.replaceChildren(...solutionOf(trajectories, chunk, i, row, pattern));
    this.ghosts.hidden = !this.thought.querySelector(".ghost");
    for (const text of [this.thought, this.solution]) reveal(text, text.querySelector("mark") ?? text.querySelector(".note"));
  }

  #showTitle(row) {
    const { trajectories } = this;
    this.title.replaceChildren(
      make("bdi", {}, `${trajectories.benchmark(row)}, problem ${trajectories.problem(row)}`),
      `, sample ${trajectories.numbers.sample[row]} `,
      make("span", { className: "who" }, make("bdi", {}, trajectories.name("model", row)), " · ", spoken(trajectories.name("strategy", row))),
    );
  }

  #showStep(row) {
    const steps = this.#steps();
    const at = steps.indexOf(row);
    const label = `budget ${this.trajectories.budget(row)}`;
    Object.assign(this.slider, { max: steps.length - 1, value: at, disabled: steps.length === 1, ariaValueText: label });
    this.smaller.disabled = at === 0;
    this.larger.disabled = at === steps.length - 1;
    this.budget.textContent = `${label} tokens (${at + 1} of ${steps.length})`;
    for (const button of this.grid.querySelectorAll("button")) {
      const isOpen = Number(button.dataset.row) === row;
      button.ariaCurrent = isOpen ? "true" : null;
      if (isOpen) bring(this.grid, button);
    }
  }

  /** Every model and strategy of the sample down, budgets across. */
  #gridOf(row) {
    const { trajectories } = this;
    const tracks = trajectories.siblings(row);
    const rows = tracks.flatMap((track) => trajectories.rows(track));
    const columns = trajectories.sortedBudgets(new Map(rows.map((one) => [trajectories.budget(one), one])));
    const head = make("tr", {}, make("td"), ...columns.map(([budget]) => make("th", { scope: "col" }, budget)));
    const lines = tracks.map((track) => {
      const own = new Map(trajectories.rows(track).map((one) => [trajectories.budget(one), one]));
      const first = trajectories.tracks[track].first;
      const who = `${trajectories.name("model", first)} · ${spoken(trajectories.name("strategy", first))}`;
      const cells = columns.map(([budget]) => make("td", {}, ...(own.has(budget) ? [this.#cell(own.get(budget), who)] : [])));
      return make("tr", {}, make("th", { scope: "row" }, make("bdi", {}, who)), ...cells);
    });
    return make("table", {}, make("thead", {}, head), make("tbody", {}, ...lines));
  }

  #cell(row, who) {
    const { trajectories } = this;
    const outcome = trajectories.outcome(row);
    const closed = trajectories.isForced(row) ? ", closed by force" : "";
    const label = `${who}, budget ${trajectories.budget(row)}: ${outcome}${closed}`;
    const className = `mark ${outcome}${closed ? " forced" : ""}`;
    const button = make("button", { type: "button", className, title: label, ariaLabel: label }, OUTCOME_SIGNS[outcome]);
    button.dataset.row = row;
    button.addEventListener("click", () => this.choose(row));
    return button;
  }

  #factsOf(chunk, i, row) {
    const { trajectories } = this;
    const { think_tokens, solution_tokens, forced_tokens, prompt_tokens, score } = trajectories.numbers;
    const explained = (column) => trajectories.wording[column][trajectories.name(column, row)] ?? trajectories.name(column, row);
    const points = trajectories.outcome(row) === "partial" ? ` (score ${score[row]})` : "";
    const grade = make("span", { className: `verdict ${trajectories.outcome(row)}` }, spoken(trajectories.name("grade_status", row)));
    const fact = (name, ...values) => make("div", {}, make("dt", {}, name), make("dd", {}, ...values));
    const facts = [
      fact("Grade", grade, ` ${explained("grade_status")}${points}`),
      fact("Answer", chunk.answer[i] === null ? "none was read" : written(chunk.answer[i], null, "written answer")),
      fact("Reference", ...this.#referenceOf(chunk, row)),
      fact("Thought", `${counted(think_tokens[row], "token")}, ${explained("think_finish")}`),
      fact("Solution", `${counted(solution_tokens[row], "token")}, ${explained("solution_finish")}`),
      fact("By the pipeline", `${counted(forced_tokens[row], "token")} written, after a prompt of ${prompt_tokens[row]}`),
    ];
    const interruptions = chunk.interruptions[i];
    if (interruptions.length) facts.push(fact("Interrupted", `by the pipeline after ${interruptions.join(", ")} thinking tokens`));
    if (chunk.dropped[i]) facts.push(fact("Taken out", `${counted(chunk.dropped[i], "sampled token")}, such as an end that came early`));
    return facts;
  }

  #referenceOf(chunk, row) {
    if (chunk.reference !== null) return [written(chunk.reference, null, "written answer")];
    const first = this.trajectories.firstRow[this.trajectories.problemOf[row]];
    const right = chunk.answer.find((answer, i) => answer !== null && this.trajectories.isRight(first + i));
    return right === undefined ? ["not known here"] : ["not known here; graded right elsewhere: ", written(right, null, "written answer")];
  }
}

/** Scroll a box, and not the page, to something in it. */
function reveal(box, element) {
  box.scrollTop = element ? element.offsetTop - box.clientHeight / 2 : 0;
}

/** Scroll a box, and not the page, until something is in it. */
function bring(box, element) {
  const [outer, inner] = [box.getBoundingClientRect(), element.getBoundingClientRect()];
  if (inner.left < outer.left || inner.right > outer.right) box.scrollLeft += inner.left - outer.left - outer.width / 2;
  if (inner.top < outer.top || inner.bottom > outer.bottom) box.scrollTop += inner.top - outer.top - outer.height / 2;
}

/** A name as people write it: "budget forcing" for "budget_forcing". */
function spoken(name) {
  return (name ?? "").replaceAll("_", " ");
}
