"use strict";

/** Which problem is solved at which budget: a field for each, of one benchmark, model and strategy. */
class ProblemMap {
  static SIZE = 16; // of a field, in CSS pixels
  static LEFT = 70;

  constructor(place, trajectories) {
    Object.assign(this, { place, trajectories, at: null });
    this.form = place.querySelector("form");
    this.box = place.querySelector(".map");
    this.told = place.querySelector("#map-told");
    const { problems, names } = trajectories;
    offer(this.form.elements.benchmark, [...new Set(problems.benchmark)].map((name) => [name, name]));
    offer(this.form.elements.model, names.model.values.map((name) => [name, name]));
    offer(this.form.elements.strategy, names.strategy.values.map((name) => [name, spoken(name)]));
    if (names.strategy.values.includes("separate")) this.form.elements.strategy.value = "separate";
    this.form.addEventListener("change", () => this.#show());
    this.box.addEventListener("keydown", (event) => this.#move(event));
    this.box.addEventListener("pointermove", (event) => this.#tell(this.#fieldAt(event)));
    this.box.addEventListener("click", (event) => this.#open(this.#fieldAt(event)));
    place.hidden = false;
    this.#show();
  }

  /** The mean score of every problem at every budget. */
  #show() {
    const { trajectories } = this;
    const [benchmark, model, strategy] = ["benchmark", "model", "strategy"].map((name) => this.form.elements[name].value);
    const problems = new Map();
    const budgets = new Map();
    for (const [track, { first }] of trajectories.tracks.entries()) {
      const isShown = trajectories.benchmark(first) === benchmark && trajectories.name("model", first) === model;
      if (!isShown || trajectories.name("strategy", first) !== strategy) continue;
      const id = trajectories.problem(first);
      if (!problems.has(id)) problems.set(id, new Map());
      for (const row of trajectories.rows(track)) {
        const budget = trajectories.budget(row);
        budgets.set(budget, row);
        const scores = problems.get(id);
        if (!scores.has(budget)) scores.set(budget, []);
        scores.get(budget).push(trajectories.numbers.score[row]);
      }
    }
    const mean = (numbers) => numbers.reduce((sum, each) => sum + each, 0) / numbers.length;
    this.budgets = trajectories.sortedBudgets(budgets).map(([budget]) => budget);
    this.columns = [...problems].map(([id, scores]) => ({
      id,
      all: mean([...scores.values()].flat()),
      shares: this.budgets.map((budget) => (scores.has(budget) ? mean(scores.get(budget)) : null)),
      counts: this.budgets.map((budget) => scores.get(budget)?.length ?? 0),
    }));
    this.columns.sort((a, b) => a.all - b.all);
    this.at = null;
    this.told.textContent = this.columns.length
      ? `${counted(this.columns.length, "problem")} at ${counted(this.budgets.length, "budget")}`
      : "This model was not measured so on this benchmark.";
    this.box.replaceChildren(this.#drawn());
  }

  #drawn() {
    const { SIZE, LEFT } = ProblemMap;
    const [width, height] = [LEFT + this.columns.length * SIZE, this.budgets.length * SIZE];
    const svg = draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    this.budgets.forEach((budget, row) => {
      svg.append(draw("text", { class: "tick", x: 0, y: row * SIZE + 12 }, budget));
    });
    this.columns.forEach(({ shares }, column) => {
      shares.forEach((share, row) => {
        if (share === null) return;
        const [x, y] = [LEFT + column * SIZE, row * SIZE];
        const full = Math.round(share * (SIZE - 2));
        svg.append(draw("rect", { class: "field", x: x + 0.5, y: y + 0.5, width: SIZE - 2, height: SIZE - 2 }));
        if (share > 0) svg.append(draw("rect", { class: "full", x: x + 0.5, y: y + SIZE - 1.5 - full, width: SIZE - 2, height: full }));
        else svg.append(draw("circle", { class: "none", cx: x + SIZE / 2 - 0.5, cy: y + SIZE / 2 - 0.5, r: 1.5 }));
      });
    });
    this.cursor = draw("rect", { class: "cursor", width: SIZE, height: SIZE, visibility: "hidden" });
    svg.append(this.cursor);
    return svg;
  }

  #fieldAt(event) {
    const box = this.box.firstChild.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - ProblemMap.LEFT) / ProblemMap.SIZE);
    const row = Math.floor((event.clientY - box.top) / ProblemMap.SIZE);
    return this.columns[column]?.counts[row] ? { column, row } : null;
  }

  #tell(field) {
    if (field === null) return;
    this.at = field;
    const { id, shares, counts } = this.columns[field.column];
    const share = (100 * shares[field.row]).toFixed(0);
    this.told.textContent = `problem ${id} at ${this.budgets[field.row]}: ${share} % right, of ${counted(counts[field.row], "sample")}`;
    this.cursor.setAttribute("x", ProblemMap.LEFT + field.column * ProblemMap.SIZE - 0.5);
    this.cursor.setAttribute("y", field.row * ProblemMap.SIZE - 0.5);
    this.cursor.setAttribute("visibility", "visible");
  }

  #open(field) {
    if (field === null) return;
    const [benchmark, model, strategy] = ["benchmark", "model", "strategy"].map((name) => this.form.elements[name].value);
    const place = { benchmark, problem: this.columns[field.column].id, model, strategy, budget: this.budgets[field.row] };
    location.hash = Address.START.slice(1) + new URLSearchParams(place);
  }

  #move(event) {
    const [right, down] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] ?? [0, 0];
    if (event.key === "Enter") this.#open(this.at);
    if (!right && !down) return;
    event.preventDefault();
    const { column, row } = this.at ?? { column: -right, row: -down };
    const next = { column: column + right, row: row + down };
    if (this.columns[next.column]?.counts[next.row]) this.#tell(next);
    this.cursor.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
}
