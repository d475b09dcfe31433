/* app.h - the command line program as a function: finds the command, reads its options, runs it, turns its result into an exit
 * code. runtime/app is the only room that prints, exits or reads the environment. */
#ifndef RUNTIME_APP_APP_H
#define RUNTIME_APP_APP_H

/* Exit codes of the contract. */
enum { APP_DONE = 0, APP_FAILED = 1, APP_USAGE = 2, APP_INTERRUPTED = 130 };

/* Returns the exit code. stdout carries the result, stderr everything else. */
int app_main(int argc, char **argv);

#endif
