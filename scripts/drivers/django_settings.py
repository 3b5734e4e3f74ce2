"""Settings for Django's own tests. SUITE_DRIVER, SUITE_SOCKET, SUITE_SERVER and SUITE_RESULTS come from scripts/test-drivers-django."""

import os
import unittest

from django.test.runner import DiscoverRunner

driver = os.environ["SUITE_DRIVER"]
path = os.environ["SUITE_SOCKET"]


def database(name, path=path):
    # The database exists already, so that other clients can be connected to it.
    common = {"NAME": name, "TEST": {"NAME": name}}
    if driver == "mysqlclient":
        return {**common, "ENGINE": "django.db.backends.mysql", "HOST": path, "USER": "root", "OPTIONS": {"charset": "utf8mb4"}}
    options = {"server_side_binding": True} if driver == "psycopg-binding" else {}
    return {
        **common,
        "ENGINE": "django.db.backends.postgresql",
        "HOST": os.path.dirname(path),
        "USER": "postgres",
        "OPTIONS": options,
    }


class Result(unittest.TextTestResult):
    """Writes one test and its result per line. Tests of a class whose set-up fails have no result."""

    def record(self, test, result):
        with open(os.environ["SUITE_RESULTS"], "a") as file:
            file.write(f"{test.id()} {result}\n")

    def addSuccess(self, test):
        super().addSuccess(test)
        self.record(test, "pass")

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.record(test, "fail")

    def addError(self, test, error):
        super().addError(test, error)
        self.record(test, "fail")

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            self.record(test, "fail")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.record(test, "skip")


class Runner(DiscoverRunner):
    def get_resultclass(self):
        return Result


DATABASES = {"default": database("suite"), "other": database("suite_other", os.environ["SUITE_SERVER"])}
TEST_RUNNER = "django_settings.Runner"
SECRET_KEY = "django_tests_secret_key"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = False
