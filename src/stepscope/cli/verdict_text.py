def print_verdict(location, *, as_json, to_stderr):
    print("run:", location)
