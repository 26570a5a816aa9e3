// Preact and htm, bound to each other; text in a template is text, never markup.
import { Component, h, render } from "./vendor/preact.mjs";
import htm from "./vendor/htm.module.js";

export const html = htm.bind(h);
export { Component, render };
