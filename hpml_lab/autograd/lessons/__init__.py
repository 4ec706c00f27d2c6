"""To be read: an autograd engine, networks that it trains, a perceptron, and autograd functions of your own."""
