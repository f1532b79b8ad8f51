"use strict";

// After the first picture of the page: the index may be large.
requestAnimationFrame(() =>
  setTimeout(async () => {
    const trajectories = new Trajectories(await unpack(document.getElementById("index")));
    new Reader(document.getElementById("reader-place"), trajectories);
    new ProblemMap(document.getElementById("problems"), trajectories);
  }),
);
