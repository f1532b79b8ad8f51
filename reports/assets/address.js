"use strict";

/**
 * What the reader shows, as the page's address says it: "#reader?benchmark=hard&strategy=separate&open=…". Its keys are
 * the names of the form's fields; the open trajectory is benchmark, problem, sample, model, strategy and budget.
 */
const Address = {
  START: "#reader?",

  /** The address's parameters; null where it says nothing of the reader. */
  read() {
    return location.hash.startsWith(Address.START) ? new URLSearchParams(location.hash.slice(Address.START.length)) : null;
  },

  /** Replace the address: stepping through trajectories is not travelling. */
  write(parameters) {
    history.replaceState(null, "", Address.START + parameters);
  },
};
