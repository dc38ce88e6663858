"use strict";
// Browsers start no Worker for a page from a file. There the search's worker runs in a hidden frame of the page.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...urls) => Promise.all(urls.map((each) => load(inside, each)));
      const loaded = load(inside, url);
      this.postMessage = (data) => loaded.then(() => inside.dispatchEvent(new MessageEvent("message", { data })));
      this.terminate = () => frame.remove();
    }
  };
}

function load(inside, url) {
  return new Promise((resolve, reject) => {
    const script = inside.document.createElement("script");
    script.src = url;
    script.onload = resolve;
    script.onerror = reject;
    inside.document.body.append(script);
  });
}
