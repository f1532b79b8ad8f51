"use strict";

/** The main figure: values at hover and focus, arrow keys from point to point, and a legend that isolates. */
class Chart {
  constructor(place) {
    this.place = place;
    this.tip = place.querySelector(".tip");
    this.alone = { model: null, strategy: null };
    for (const point of place.querySelectorAll(".point")) {
      point.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && this.#tell(point));
      point.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.#tell(null));
      point.addEventListener("focus", () => this.#tell(point));
      point.addEventListener("blur", () => this.#tell(null));
      point.addEventListener("click", (event) => this.#touch(event, point));
      point.addEventListener("keydown", (event) => this.#move(event, point));
    }
    for (const line of place.querySelectorAll(".line")) {
      const names = [...place.querySelectorAll(".series[data-kind=model]")];
      line.addEventListener("click", () => this.#isolate(names.find((button) => button.dataset.name === line.dataset.model)));
    }
    for (const button of place.querySelectorAll(".series")) button.addEventListener("click", () => this.#isolate(button));
  }

  #tell(point) {
    this.tip.hidden = point === null;
    this.told = point;
    if (point === null) return;
    this.tip.textContent = point.ariaLabel;
    const [mark, box] = [point.querySelector(".touch").getBoundingClientRect(), this.place.getBoundingClientRect()];
    const left = Math.min(mark.left - box.left, box.width - this.tip.offsetWidth);
    this.tip.style.left = `${Math.max(0, left)}px`;
    this.tip.style.top = `${mark.bottom - box.top + 6}px`;
  }

  /** A finger cannot hover: its first touch tells, the second one opens. */
  #touch(event, point) {
    if (event.pointerType !== "touch" || this.touched === point) return;
    this.touched = point;
    event.preventDefault();
    this.#tell(point);
  }

  #move(event, point) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const points = [...point.closest("svg").querySelectorAll(".point:not(.faint)")];
    const next = by && points[points.indexOf(point) + by];
    if (!next) return;
    event.preventDefault();
    next.focus();
  }

  /** One model, one strategy, or one of both; a second click brings the others back. */
  #isolate(button) {
    const { kind, name } = button.dataset;
    this.alone[kind] = this.alone[kind] === name ? null : name;
    for (const other of this.place.querySelectorAll(`.series[data-kind=${kind}]`)) {
      other.ariaPressed = String(other.dataset.name === this.alone[kind]);
    }
    const isOut = ({ model, strategy }) =>
      (this.alone.model !== null && model !== this.alone.model) ||
      (this.alone.strategy !== null && strategy !== this.alone.strategy);
    // A strategy in the background comes forward.
    this.place.classList.toggle("alone", this.alone.strategy !== null);
    for (const drawn of this.place.querySelectorAll(".line, .point")) drawn.classList.toggle("faint", isOut(drawn.dataset));
  }
}

for (const place of document.querySelectorAll(".chart")) new Chart(place);
