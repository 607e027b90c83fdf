"""Learning from what really happened: margins that hold, drift that is noticed, and how right each estimator has been."""
