// Browsers start no worker for a page on disk: there the search runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = `<script src="${url}"></script>`;
      this.inside = new Promise((ready) => {
        frame.addEventListener("load", () => {
          frame.contentWindow.postMessage = (data) =>
            this.dispatchEvent(new MessageEvent("message", { data }));
          ready(frame.contentWindow);
        });
      });
      document.body.append(frame);
    }

    async postMessage(data) {
      (await this.inside).dispatchEvent(new MessageEvent("message", { data }));
    }
  };
}
