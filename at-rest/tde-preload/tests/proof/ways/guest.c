/* What a C extension may do to descriptors when it is loaded. The server then refuses it, because it is none. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char stack[1 << 16];

static int close_all(void *nothing)
{
    close_range(3, ~0U, 0);
    _exit(0);
}

static void *descriptors_come_and_go(void *nothing)
{
    for (int n = 0; n < 100; n++) {
        int one = open("/dev/null", O_WRONLY | O_CLOEXEC), other = fcntl(one, F_DUPFD_CLOEXEC, 200);
        dup2(one, other);
        close(one);
        close(other);
    }
    return NULL;
}

static void await(pid_t child)
{
    int status;
    while (child > 0 && waitpid(child, &status, 0) < 0)
        ;
}

__attribute__((constructor)) static void loaded(void)
{
    char *program[] = {"true", NULL};
    posix_spawn_file_actions_t actions;
    pthread_t thread;
    pid_t child = fork();
    if (child == 0)
        close_all(NULL);
    await(child);
    child = vfork();
    if (child == 0) {
        close_range(3, ~0U, 0);
        execv("/bin/true", program);
        _exit(127);
    }
    await(child);
    await(clone(close_all, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    if (posix_spawn(&child, "/bin/true", &actions, NULL, program, environ) == 0)
        await(child);
    if (system("true") == 0 && pthread_create(&thread, NULL, descriptors_come_and_go, NULL) == 0)
        pthread_join(thread, NULL);
    descriptors_come_and_go(NULL);
}
