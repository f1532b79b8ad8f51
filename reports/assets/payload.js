"use strict";

/** The JSON that a script element of the page holds deflated, in base64. */
async function unpack(element) {
  const binary = atob(element.textContent);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  const inflated = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(inflated).json();
}

/** The texts of the problems, inflated when asked for; the latest few stay. */
class Chunks {
  static KEPT = 32;
  #elements = document.querySelectorAll("script.chunk");
  #loaded = new Map();

  load(problem) {
    const chunk = this.#loaded.get(problem) ?? unpack(this.#elements[problem]);
    this.#loaded.delete(problem);
    this.#loaded.set(problem, chunk);
    if (this.#loaded.size > Chunks.KEPT) this.#loaded.delete(this.#loaded.keys().next().value);
    return chunk;
  }
}
