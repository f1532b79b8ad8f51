"use strict";

/** The reader: a form that filters, a list of tracks, and the trajectory that is open. */
class Reader {
  static PAUSE = 250; // milliseconds without a key before a search begins
  static REFRESH = 200; // milliseconds between two updates while it runs
  static TEXTS = ["benchmark", "sample", "model", "strategy", "budget", "search"];
  static CHECKS = ["wrong", "forced", "flips"];

  constructor(place, trajectories) {
    Object.assign(this, { place, trajectories, chunks: new Chunks(), found: null, pattern: null, searching: "", wished: null });
    this.form = place.querySelector("form");
    this.matches = place.querySelector(".matches");
    this.empty = place.querySelector(".empty");
    this.list = new LongList(place.querySelector(".list"), (i) => this.#line(this.matched.tracks[i]), (i) => this.#choose(this.#rowOf(i)));
    this.detail = new Detail(place.querySelector(".detail"), trajectories, this.chunks, (row) => this.#choose(row));
    this.#fillChoices();
    this.form.addEventListener("submit", (event) => this.#leaveForm(event));
    this.form.addEventListener("pointerdown", () => (this.isByKey = false));
    this.form.addEventListener("keydown", () => (this.isByKey = true));
    this.form.addEventListener("change", (event) => this.#changed(event.target));
    this.form.addEventListener("reset", () => setTimeout(() => this.#reset()));
    this.form.elements.search.addEventListener("input", () => this.#scheduleSearch());
    this.empty.querySelector("button").addEventListener("click", () => this.form.reset());
    place.addEventListener("keydown", (event) => this.#step(event));
    addEventListener("hashchange", () => this.#visit());
    place.hidden = false;
    if (Address.read()) this.#visit();
    else {
      this.wished = trajectories.interesting(place.dataset);
      this.#filter();
    }
  }

  #fillChoices() {
    const { problems, names, numbers } = this.trajectories;
    const benchmarks = [...new Set(problems.benchmark)];
    this.#offer("benchmark", benchmarks.map((name) => [name, name]));
    this.#offerProblems();
    this.#offer("sample", [...new Set(numbers.sample)].sort((a, b) => a - b).map((number) => [number, number]));
    this.#offer("model", names.model.values.map((name) => [name, name]));
    this.#offer("strategy", names.strategy.values.map((name) => [name, spoken(name)]));
    const budgets = this.trajectories.sortedBudgets(this.trajectories.budgets());
    this.#offer("budget", budgets.map(([budget]) => [budget, budget]));
  }

  #offer(field, choices) {
    offer(this.form.elements[field], [["", "all"], ...choices]);
  }

  #offerProblems() {
    const { problems } = this.trajectories;
    const benchmark = this.form.elements.benchmark.value;
    const choices = problems.id
      .map((id, problem) => [problem, benchmark ? id : `${problems.benchmark[problem]} ${id}`])
      .filter(([problem]) => benchmark === "" || problems.benchmark[problem] === benchmark);
    this.#offer("problem", choices);
  }

  /** Show what the address says, and bring the reader into view. */
  #visit() {
    const asked = Address.read();
    if (asked === null) return;
    const { problems } = this.trajectories;
    const { elements } = this.form;
    for (const name of Reader.TEXTS) elements[name].value = asked.get(name) ?? "";
    for (const name of Reader.CHECKS) elements[name].checked = asked.has(name);
    this.#offerProblems();
    const isAsked = (id, i) => id === asked.get("problem") && problems.benchmark[i] === asked.get("benchmark");
    const problem = problems.id.findIndex(isAsked);
    elements.problem.value = problem < 0 ? "" : problem;
    this.detail.clear();
    this.wished = asked.has("open") ? this.trajectories.find(asked.getAll("open")) : null;
    this.#search();
    this.place.querySelector(".reader").scrollIntoView();
    this.list.box.focus({ preventScroll: true });
  }

  /** The address of what is shown. */
  #write() {
    const { elements } = this.form;
    const parameters = new URLSearchParams();
    for (const name of Reader.TEXTS) if (elements[name].value) parameters.set(name, elements[name].value);
    for (const name of Reader.CHECKS) if (elements[name].checked) parameters.set(name, "1");
    if (elements.problem.value) {
      parameters.set("benchmark", this.trajectories.problems.benchmark[elements.problem.value]);
      parameters.set("problem", this.trajectories.problems.id[elements.problem.value]);
    }
    if (this.detail.row !== null) this.trajectories.key(this.detail.row).forEach((part) => parameters.append("open", part));
    Address.write(parameters);
  }

  #changed(field) {
    if (field.name === "search") return;
    if (field.name === "benchmark") this.#offerProblems();
    this.#filter();
    this.#write();
    // The list takes the arrow keys, except from whoever goes through the choices by them.
    if (field.tagName === "SELECT" && !this.isByKey) this.list.box.focus({ preventScroll: true });
  }

  #leaveForm(event) {
    event.preventDefault();
    this.list.box.focus({ preventScroll: true });
  }

  async #reset() {
    this.#offerProblems();
    await this.#search();
    this.#write();
  }

  #scheduleSearch() {
    clearTimeout(this.pause);
    this.pause = setTimeout(() => this.#search().then(() => this.#write()), Reader.PAUSE);
  }

  async #search() {
    clearTimeout(this.pause);
    const pattern = patternOf(this.form.elements.search.value);
    Object.assign(this, { pattern, found: null, searching: "" });
    if (pattern) {
      let shown = performance.now();
      for await (const { found, searched } of search(this.trajectories, this.chunks, pattern)) {
        if (this.pattern !== pattern) return; // Another search has begun.
        this.found = found;
        if (performance.now() - shown < Reader.REFRESH) continue;
        this.searching = `, searched ${searched} of ${this.trajectories.firstRow.length} problems so far`;
        this.#filter();
        await new Promise((resolve) => setTimeout(resolve));
        shown = performance.now();
      }
      this.searching = "";
    }
    this.#filter();
  }

  #filter() {
    const { elements } = this.form;
    const texts = ["problem", ...Reader.TEXTS].map((name) => [name, elements[name].value]);
    const checks = Reader.CHECKS.map((name) => [name, elements[name].checked]);
    this.matched = this.trajectories.matching(Object.fromEntries([...texts, ...checks]), this.found);
    const { tracks, rows, numRows } = this.matched;
    this.matches.textContent =
      `${numRows.toLocaleString("en")} of ${this.trajectories.count.toLocaleString("en")} trajectories, in ` +
      `${tracks.length.toLocaleString("en")} series of budgets${this.searching}`;
    this.empty.hidden = numRows > 0 || this.searching !== "";
    if (numRows === 0) {
      this.list.show(0, -1);
      this.detail.clear();
    } else {
      const kept = [this.wished, this.detail.row].find((row) => row !== null && rows[row]);
      this.#show(kept ?? this.#rowOf(0));
    }
    if (this.searching === "") this.wished = null;
  }

  /** The row that a line of the list opens: its first matching one, or the one with the budget that is open. */
  #rowOf(line) {
    const { trajectories, matched, detail } = this;
    const rows = trajectories.rows(matched.tracks[line]).filter((row) => matched.rows[row]);
    const budget = detail.row === null ? null : trajectories.budget(detail.row);
    return rows.find((row) => trajectories.budget(row) === budget) ?? rows[0];
  }

  /** A person chose a row, which the address then says. */
  #choose(row) {
    this.#show(row);
    this.#write();
  }

  #show(row) {
    const line = this.matched.tracks.indexOf(this.trajectories.trackOf[row]);
    this.detail.show(row, this.pattern);
    this.list.show(this.matched.tracks.length, line, { reveal: true });
  }

  /** Arrows step through budgets and lines wherever they mean nothing of their own, as in a choice or the slider. */
  #step(event) {
    const isField = event.target.matches("select, textarea, input:not([type=checkbox])");
    if (event.defaultPrevented || isField || event.ctrlKey || event.altKey || event.metaKey || this.detail.row === null) return;
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by !== undefined) {
      event.preventDefault();
      this.detail.step(by);
    } else if (event.target.closest(".filters")) {
      this.list.move(event);
    }
  }

  #line(track) {
    const { trajectories, matched, detail } = this;
    const { first } = trajectories.tracks[track];
    const rows = trajectories.rows(track);
    const marks = rows.map((row) => {
      const classes = ["mark", trajectories.outcome(row), trajectories.isForced(row) ? "forced" : ""];
      classes.push(matched.rows[row] ? "" : "other", row === detail.row ? "open" : "");
      return make("span", { className: classes.filter(Boolean).join(" ") });
    });
    const numRight = rows.filter((row) => trajectories.isRight(row)).length;
    const strip = make("span", { className: "strip", role: "img", ariaLabel: `right at ${numRight} of ${rows.length} budgets` }, ...marks);
    const problem = make("bdi", {}, `${trajectories.benchmark(first)} ${trajectories.problem(first)}`);
    const who = make("bdi", {}, `${trajectories.name("model", first)} · ${spoken(trajectories.name("strategy", first))}`);
    return make(
      "div",
      { className: "line" },
      make("span", { className: "what" }, problem, ` · sample ${trajectories.numbers.sample[first]}`),
      make("span", { className: "who" }, who),
      strip,
    );
  }
}
