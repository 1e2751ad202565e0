"""What is given and what it computes: bags, parameters, loss, one step on E."""
