"use strict";

/** The reader: a form that filters, a list of tracks, and the trajectory that is open. */
class Reader {
  static PAUSE = 250; // milliseconds without a key before a search begins
  static REFRESH = 200; // milliseconds between two updates while it runs

  constructor(place, trajectories) {
    Object.assign(this, { trajectories, chunks: new Chunks(), found: null, pattern: null, searching: "" });
    this.form = place.querySelector("form");
    this.matches = place.querySelector(".matches");
    this.list = new LongList(place.querySelector(".list"), (i) => this.#line(this.matched.tracks[i]), (i) => this.#open(i));
    this.detail = new Detail(place.querySelector(".detail"), trajectories, this.chunks, (row) => this.#choose(row));
    this.#fillChoices();
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("change", (event) => this.#changed(event.target));
    this.form.addEventListener("reset", () => setTimeout(() => this.#reset()));
    this.form.elements.search.addEventListener("input", () => this.#scheduleSearch());
    place.querySelector(".reader").addEventListener("keydown", (event) => this.#step(event));
    place.hidden = false;
    this.#filter();
  }

  #fillChoices() {
    const { problems, names, numbers } = this.trajectories;
    const benchmarks = [...new Set(problems.benchmark)];
    this.#offer("benchmark", benchmarks.map((name) => [name, name]));
    this.#offerProblems();
    this.#offer("sample", [...new Set(numbers.sample)].sort((a, b) => a - b).map((number) => [number, number]));
    this.#offer("model", names.model.values.map((name) => [name, name]));
    this.#offer("strategy", names.strategy.values.map((name) => [name, spoken(name)]));
  }

  #offer(field, choices) {
    const options = choices.map(([value, text]) => make("option", { value }, String(text)));
    this.form.elements[field].replaceChildren(make("option", { value: "" }, "all"), ...options);
  }

  #offerProblems() {
    const { problems } = this.trajectories;
    const benchmark = this.form.elements.benchmark.value;
    const choices = problems.id
      .map((id, problem) => [problem, benchmark ? id : `${problems.benchmark[problem]} ${id}`])
      .filter(([problem]) => benchmark === "" || problems.benchmark[problem] === benchmark);
    this.#offer("problem", choices);
  }

  #changed(field) {
    if (field.name === "search") return;
    if (field.name === "benchmark") this.#offerProblems();
    this.#filter();
  }

  #reset() {
    this.#offerProblems();
    this.#search();
  }

  #scheduleSearch() {
    clearTimeout(this.pause);
    this.pause = setTimeout(() => this.#search(), Reader.PAUSE);
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
    const { benchmark, problem, sample, model, strategy, wrong, forced, flips } = this.form.elements;
    const wanted = {
      benchmark: benchmark.value,
      problem: problem.value,
      sample: sample.value,
      model: model.value,
      strategy: strategy.value,
      wrong: wrong.checked,
      forced: forced.checked,
      flips: flips.checked,
    };
    this.matched = this.trajectories.matching(wanted, this.found);
    const { tracks, rows, numRows } = this.matched;
    this.matches.textContent =
      `${numRows.toLocaleString("en")} of ${this.trajectories.count.toLocaleString("en")} trajectories, in ` +
      `${tracks.length.toLocaleString("en")} series of budgets${this.searching}`;
    if (numRows === 0) {
      this.list.show(0, -1);
      this.detail.clear();
    } else if (this.detail.row !== null && rows[this.detail.row]) {
      this.#choose(this.detail.row);
    } else {
      this.#open(0);
    }
  }

  /** A line of the list was chosen: its first matching row, or the one with the budget that is open. */
  #open(line) {
    const { trajectories, matched, detail } = this;
    const rows = trajectories.rows(matched.tracks[line]).filter((row) => matched.rows[row]);
    const budget = detail.row === null ? null : trajectories.budget(detail.row);
    this.#choose(rows.find((row) => trajectories.budget(row) === budget) ?? rows[0]);
  }

  #choose(row) {
    const line = this.matched.tracks.indexOf(this.trajectories.trackOf[row]);
    this.detail.show(row, this.pattern);
    this.list.show(this.matched.tracks.length, line, { reveal: true });
  }

  /** The left and right arrows step through budgets, but on the slider, which does so by itself. */
  #step(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by === undefined || event.target === this.detail.slider || event.ctrlKey || event.altKey || event.metaKey) return;
    if (this.detail.row === null) return;
    event.preventDefault();
    this.detail.step(by);
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

// After the first picture of the page: the index may be large.
requestAnimationFrame(() =>
  setTimeout(async () => {
    const index = await unpack(document.getElementById("index"));
    new Reader(document.getElementById("reader-place"), new Trajectories(index));
  }),
);
