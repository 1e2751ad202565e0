"""Problems of any model whose scores are linear in what is trained."""
