REQUESTED = []


def request_resources(bundles):
    REQUESTED.append(bundles)
