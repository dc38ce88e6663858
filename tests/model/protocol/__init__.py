"""The run protocol as a model: jobs as small atomic steps over an abstract Delta log, explored in every order."""
