// Search on pages opened from the disk: browsers start no worker there, so a hidden frame does its
// work. Pages from a server keep the browser's own workers.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame); // without an address it belongs to this page
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = frame.contentDocument.createElement("script");
      script.src = url;
      script.onload = () => {
        this.ready = true;
        this.waiting.splice(0).forEach((data) => this.postMessage(data));
      };
      frame.contentDocument.head.append(script);
    }
    postMessage(data) {
      if (this.ready) {
        // later, as of a true worker: whoever asks is not answered before it listens
        setTimeout(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
      } else {
        this.waiting.push(data);
      }
    }
    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
