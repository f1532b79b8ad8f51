"use strict";

/** An element with properties and children. Strings become text, never markup: what models wrote comes through here. */
function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/** As the page's own pictures have it. */
const SVG = document.querySelector("svg").namespaceURI;

/** An element of an SVG, with attributes and children. */
function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Give a select its choices, [value, text] each. */
function offer(select, choices) {
  select.replaceChildren(...choices.map(([value, text]) => make("option", { value }, String(text))));
}
