"""One page that shows every result on disk: claims, phases and figures."""
