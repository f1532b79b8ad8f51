"use strict";

/** An element with properties and children. Strings become text, never markup: what models wrote comes through here. */
function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}
