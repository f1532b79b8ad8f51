"use strict";

/** A list box of any length: only the lines in sight are in the document. */
class LongList {
  static LINE = 46; // CSS pixels, as in reader.css

  /** `draw` makes line i of the list; `choose` is told that line i was chosen. */
  constructor(box, draw, choose) {
    Object.assign(this, { box, draw, choose, count: 0, chosen: -1 });
    this.sheet = make("div", { className: "sheet", role: "presentation" });
    box.replaceChildren(this.sheet);
    box.addEventListener("scroll", () => this.#fill(), { passive: true });
    box.addEventListener("click", (event) => {
      const line = event.target.closest("[role=option]");
      if (line) this.choose(Number(line.dataset.line));
    });
    box.addEventListener("keydown", (event) => this.move(event));
    new ResizeObserver(() => this.#fill()).observe(box);
  }

  /** Show `count` lines anew, `chosen` among them (-1: none), in sight if asked for. */
  show(count, chosen, { reveal = false } = {}) {
    Object.assign(this, { count, chosen });
    this.sheet.style.height = `${count * LongList.LINE}px`;
    if (reveal && chosen >= 0) this.#reveal();
    this.#fill();
  }

  #reveal() {
    const top = this.chosen * LongList.LINE;
    const { scrollTop, clientHeight } = this.box;
    if (top < scrollTop) this.box.scrollTop = top;
    if (top + LongList.LINE > scrollTop + clientHeight) this.box.scrollTop = top + LongList.LINE - clientHeight;
  }

  #fill() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / LongList.LINE) - 3);
    const last = Math.min(this.count, first + Math.ceil(this.box.clientHeight / LongList.LINE) + 7);
    const lines = [];
    for (let i = first; i < last; i++) {
      const line = this.draw(i);
      Object.assign(line, { role: "option", id: `line-${i}`, ariaSelected: String(i === this.chosen) });
      Object.assign(line, { ariaSetSize: String(this.count), ariaPosInSet: String(i + 1) });
      line.dataset.line = i;
      line.style.top = `${i * LongList.LINE}px`;
      lines.push(line);
    }
    this.sheet.replaceChildren(...lines);
    if (this.chosen >= first && this.chosen < last) this.box.setAttribute("aria-activedescendant", `line-${this.chosen}`);
    else this.box.removeAttribute("aria-activedescendant");
  }

  /** A key that goes from line to line was pressed, here or beside the list. */
  move(event) {
    const page = Math.max(1, Math.floor(this.box.clientHeight / LongList.LINE) - 1);
    const target = {
      ArrowDown: this.chosen + 1,
      ArrowUp: this.chosen - 1,
      PageDown: this.chosen + page,
      PageUp: this.chosen - page,
      Home: 0,
      End: this.count - 1,
    }[event.key];
    if (target === undefined || this.count === 0) return;
    event.preventDefault();
    this.choose(Math.min(Math.max(target, 0), this.count - 1));
  }
}
